// Print each event of a stream as a line of JSON: clients r3labs|tmaxmax|tmaxmax-once URL
package main

import (
	"encoding/json"
	"net/http"
	"os"
	"time"

	r3labs "github.com/r3labs/sse/v2"
	tmaxmax "github.com/tmaxmax/go-sse"
)

const pause = 200 * time.Millisecond // between two attempts, after the library has given up

var out = json.NewEncoder(os.Stdout)

func say(id, event, data string) {
	out.Encode(map[string]string{"id": id, "event": event, "data": data})
}

func withR3labs(url string) {
	client := r3labs.NewClient(url)
	for ; ; time.Sleep(pause) {
		client.SubscribeRaw(func(event *r3labs.Event) {
			if len(event.Event) > 0 {
				say(string(event.ID), string(event.Event), string(event.Data))
			}
		})
	}
}

func withTmaxmax(url string, isOnce bool) {
	cursor := ""
	for ; ; time.Sleep(pause) {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			panic(err)
		}
		if cursor != "" {
			request.Header.Set("Last-Event-ID", cursor)
		}
		connection := tmaxmax.NewConnection(request)
		connection.SubscribeToAll(func(event tmaxmax.Event) {
			cursor = event.LastEventID
			if event.Type != "" {
				say(event.LastEventID, event.Type, event.Data)
			}
		})
		err = connection.Connect()
		if isOnce { // as a program does that leaves it to the library to connect again
			out.Encode(map[string]string{"state": err.Error()})
			return
		}
	}
}

func main() {
	if os.Args[1] == "r3labs" {
		withR3labs(os.Args[2])
	}
	withTmaxmax(os.Args[2], os.Args[1] == "tmaxmax-once")
}
