"""Tools that come with accelprof and serve every accelerator: our own timeline, torch.profiler, allocator snapshots."""
