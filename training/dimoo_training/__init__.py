"""Training: synthetic world, supervised and preference training, Self-GRPO, evaluation."""
