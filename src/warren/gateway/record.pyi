class GatewayRecord:
    last: int
    done: int
    count: int
    refused_count: int
