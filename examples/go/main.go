// A consumer on oplogc, oplog's own client, as it was: only the address is another one.
//
//	go get github.com/dailymotion/oplogc && go run . http://127.0.0.1:8042/ seen
//
// The tests do not compile this file: the module is not fetched there. What they do run is a
// stand-in that is as strict about the stream as oplogc is (tests/compat/oplog/oplogc.py).
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/dailymotion/oplogc"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go run . URL STATE_FILE")
	}
	consumer := oplogc.Subscribe(os.Args[1], oplogc.Options{
		StateFile:        os.Args[2],
		AllowReplication: true,
		Password:         os.Getenv("TIDINGS_PASSWORD"),
	})
	operations, failures, done := consumer.Start()
	for {
		select {
		case operation := <-operations:
			show(operation)
			operation.Done()
		case failure := <-failures:
			if failure == oplogc.ErrAccessDenied || failure == oplogc.ErrWritingState {
				log.Fatal(failure)
			}
			log.Print(failure) // oplogc connects again by itself
		case <-done:
			return
		}
	}
}

func show(operation oplogc.Operation) {
	switch operation.Event {
	case "reset", "live":
		fmt.Println("**", operation.Event)
	default:
		fmt.Println(operation.Event, operation.Data.Type, operation.Data.ID)
	}
}
