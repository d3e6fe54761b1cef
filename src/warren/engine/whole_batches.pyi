from warren.engine.restored_log import RestoredLog

BATCH_BEGINS: bytes
BATCH_ENDS: bytes

class WholeBatches(RestoredLog): ...
