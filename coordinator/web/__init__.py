"""The HTTP port: /metrics, /healthz, /readyz."""
