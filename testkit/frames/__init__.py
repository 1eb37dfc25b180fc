"""Frames from plain values, legal ones and random ones, and a raw peer that sends them."""
