"""What a layer raises that can't hold here."""


class LayerMissing(Exception):
    """A layer can't hold what it should on this machine.

    ``layer`` is its name, ``why`` says what is missing and what would mend it.
    """

    def __init__(self, layer: str, why: str) -> None:
        """Say both."""
        super().__init__(f"{layer}: {why}")
        self.layer, self.why = layer, why
