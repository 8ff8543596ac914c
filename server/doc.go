// Package server speaks HTTP for ragate: it turns the requests of several client dialects into calls on the types of package
// inference, and the results and errors into the bodies those clients expect.
//
// Start here: [New] makes a [Server] from a [Config]; [Server.SetReady] hands it an [Engine] once the models are loaded and
// warmed; [Server.Serve] answers on a listener until [Server.Shutdown]. A server can listen before its models are there: it then
// says so on /ready and refuses work with 503. [Server.Observer] is what the inference engine reports its batches to.
//
//	srv, err := server.New(cfg, logger)      // cfg: server.DefaultConfig(), then changed
//	go srv.Serve(listener)
//	engine := open(…, srv.Observer())
//	srv.SetReady(engine)                     // engine implements server.Engine
//	…
//	err = srv.Shutdown(ctx)                  // /ready is 503 at once; requests in flight finish; then close the engine
//
// Not for: deciding anything about text. Tokens, tensors and scores belong to inference, decisions to gates. The package reads no
// environment, flags or files, and keeps no global state; two servers in one process do not know of each other.
//
// It promises that
//   - every answer is strict JSON (but for /metrics and the page /docs) with an X-Request-Id, and every error has the shape of its route's dialect;
//   - one function turns an error into its kind, and one table gives a kind its status (errors.go);
//   - a request is refused whole or answered whole: limits are checked before any text reaches a model;
//   - no text of a request is ever logged;
//   - no body can make it panic or answer 5xx (a fuzz test holds it to that).
//
// # Files
//
// config.go limits and their names; server.go routes and life cycle; middleware.go what happens around each request; body.go and
// json.go from bytes to fields; fields.go from fields to values; openai.go, cohere.go, tei.go, kserve.go, ops.go one file per dialect;
// work.go the calls on models they share; encode.go numbers and strings to JSON; errors.go kinds, statuses and error bodies;
// metrics.go what is counted; docs.go the API's description, whose text is in the package openapi.
package server
