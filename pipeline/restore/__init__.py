"""Plans that put offsets back, and who carries them out."""
