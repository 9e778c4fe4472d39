module worker

go 1.19

require kvqueue.example/kvqueue v0.0.0

replace kvqueue.example/kvqueue => ../../../clients/go
