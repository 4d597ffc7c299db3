"""The HTTP port: /metrics, /healthz, /readyz, and /upstream in gateway mode."""
