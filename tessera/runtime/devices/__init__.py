"""Devices beside the processor: their memory, their queues, and programs that run there."""
