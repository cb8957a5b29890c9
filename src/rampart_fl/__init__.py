"""Byzantine-robust, personalized federated learning."""
