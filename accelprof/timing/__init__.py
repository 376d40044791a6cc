"""What training code loads: timers, ranges and their gate. The standard library only."""
