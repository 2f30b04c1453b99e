"""Fitness and update on several devices, in several processes and on another platform, beside one device."""
