# Quotas as resources of the Terraform provider Mongey/kafka.
resource "kafka_quota" "web" {
  entity_type = "user"
  entity_name = "web"
  config = {
    "producer_byte_rate" = "10485760"
    "request_percentage" = "200"
  }
}

resource "kafka_quota" "default_user" {
  entity_type = "user"
  config = {
    "consumer_byte_rate" = "2097152"
  }
}
