"""An application whose schedules tick every second, for processes that are killed and frozen meanwhile."""
