module example.org/tidings-consumer

go 1.20
