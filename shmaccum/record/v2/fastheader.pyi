class FastHeader:
    def write(
        self,
        buf: memoryview,
        size: int,
        attributes: int,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        rest: tuple[memoryview, ...],
    ) -> None: ...
