_kafka_quotas_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _KAFKA_QUOTAS_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _kafka_quotas_completion kafka-quotas
