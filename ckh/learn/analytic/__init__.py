"""The analytic estimate, and answers without measurements."""
