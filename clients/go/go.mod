module kvqueue.example/kvqueue

go 1.19
