"""The study of joint training."""
