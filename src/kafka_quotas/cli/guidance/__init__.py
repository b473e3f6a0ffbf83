"""What leads a newcomer on: the help of commands and topics, and examples to copy."""
