class FastHeader:
    def put_covered(
        self,
        buf: memoryview,
        attributes: int,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> None: ...
    def put_up_to_crc(self, buf: memoryview, length: int, leader_epoch: int, magic: int, crc: int) -> None: ...
