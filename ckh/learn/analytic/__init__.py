"""The analytic estimate, and answers where nothing was measured."""
