"""Throughput and memory."""
