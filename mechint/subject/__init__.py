"""A subject: a model, its task, the inputs that it is asked about, and its activations."""

from mechint.subject.subject import At, Subject, Which, check_subjects

__all__ = ["At", "Subject", "Which", "check_subjects"]
