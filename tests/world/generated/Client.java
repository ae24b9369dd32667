import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.*;
import org.openapitools.client.model.*;

/** Use the client that openapi-generator (java) makes: java Client URL FEED PASSWORD. */
public class Client {
  public static void main(String[] arguments) throws Exception {
    String feed = arguments[1];
    ApiClient client = new ApiClient();
    client.setBasePath(arguments[0]);
    client.setUsername("ann");
    client.setPassword(arguments[2]);

    Operation operation =
        new Operation().event(Operation.EventEnum.INSERT).type("order").id("o-1").data(1);
    new OperationsApi(client)
        .postOperations(feed, new PostOperationsRootRequest(operation), null, null, null);

    ChangesApi changes = new ChangesApi(client);
    ChangeRequest change = new ChangeRequest().tags(List.of("a")).data(Map.of("n", 7L));
    long id = changes.postChange(feed, change, null).getId();
    List<Change> listed = changes.listChanges(feed, id - 1, null, null, null, null).getChanges();
    Map<?, ?> data = (Map<?, ?>) listed.get(listed.size() - 1).getData();

    KeysApi keys = new KeysApi(client);
    KeyRequest wanted = new KeyRequest().roles(List.of(KeyRequest.RolesEnum.READ));
    String key = keys.createKey(feed, wanted, null).getId();
    String held = "";
    for (Key each : keys.listKeys(feed, null).getKeys()) {
      held = each.getId().equals(key) ? each.getState().getValue() : held;
    }
    String revoked = keys.revokeKey(feed, key, null).getState().getValue();

    ConsumersApi consumers = new ConsumersApi(client);
    ConsumerRequest start = new ConsumerRequest().types(List.of("order"));
    consumers.putConsumer(feed, "search", null, start);
    Lease lease = consumers.leaseConsumer(feed, "search", new LeaseRequest().worker("w"));
    Acknowledgement done = new Acknowledgement().fence(lease.getFence());
    consumers.acknowledgeMessages(feed, "search", done);
    String deleted = consumers.deleteConsumer(feed, "search", "a test", "ann").getDeleted();
    long n = ((Number) data.get("n")).longValue();
    System.out.println(n + " " + held + " " + revoked + " " + deleted);
  }
}
