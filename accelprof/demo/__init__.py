"""The main job to try accelprof on: a small policy trained with GRPO by real Ray actors."""
