"""The ready queue in Kafka."""

from .queue import KafkaQueue, KafkaSettings

__all__ = ["KafkaQueue", "KafkaSettings"]
