// Use the client that openapi-generator (go) makes.
//
// go run . URL FEED PASSWORD
package main

import (
	"context"
	"fmt"
	"os"

	api "tidings"
)

func must[T any](result T, _ any, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

func main() {
	url, feed, password := os.Args[1], os.Args[2], os.Args[3]
	configuration := api.NewConfiguration()
	configuration.Servers = api.ServerConfigurations{{URL: url}}
	client := api.NewAPIClient(configuration)
	auth := api.BasicAuth{UserName: "ann", Password: password}
	ctx := context.WithValue(context.Background(), api.ContextBasicAuth, auth)

	operation := api.NewOperation("insert", "order", "o-1")
	body := api.PostOperationsRootRequest{Operation: operation}
	must(client.OperationsAPI.PostOperations(ctx, feed).PostOperationsRootRequest(body).Execute())

	change := api.ChangeRequest{Tags: []string{"a"}, Data: map[string]any{"n": 7}}
	posted := must(client.ChangesAPI.PostChange(ctx, feed).ChangeRequest(change).Execute())
	listed := must(client.ChangesAPI.ListChanges(ctx, feed).Since(posted.Id - 1).Execute())
	data := listed.Changes[len(listed.Changes)-1].Data.(map[string]any)

	wanted := *api.NewKeyRequest([]string{"read"})
	key := must(client.KeysAPI.CreateKey(ctx, feed).KeyRequest(wanted).Execute())
	held := ""
	for _, each := range must(client.KeysAPI.ListKeys(ctx, feed).Execute()).Keys {
		if each.Id == key.Id {
			held = each.State
		}
	}
	revoked := must(client.KeysAPI.RevokeKey(ctx, feed, key.Id).Execute())

	oldest := "oldest"
	start := api.ConsumerRequest{From: &api.ConsumerRequestFrom{String: &oldest}}
	consumers := client.ConsumersAPI
	must(consumers.PutConsumer(ctx, feed, "search").ConsumerRequest(start).Execute())
	request := *api.NewLeaseRequest("w")
	lease := must(consumers.LeaseConsumer(ctx, feed, "search").LeaseRequest(request).Execute())
	done := *api.NewAcknowledgement(lease.Fence)
	must(consumers.AcknowledgeMessages(ctx, feed, "search").Acknowledgement(done).Execute())
	deleted := must(consumers.DeleteConsumer(ctx, feed, "search").Why("a test").By("ann").Execute())
	fmt.Println(data["n"], held, revoked.State, deleted.Deleted)
}
