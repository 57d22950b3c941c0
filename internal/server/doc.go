// Package server shows a fleet to people and programs, and takes their orders: a REST API
// with its OpenAPI document, an event stream, metrics, and a page for browsers.
//
// It moves nothing and holds nothing: whatever it says is in the roster, and whatever it is
// told becomes a row there. So plans survive it, and several servers may stand before one
// roster.
//
//	Server   the listener, its TLS, and who may do what
//	hub      one reader of the roster for all who listen to the event stream
//	Tokens   who may come in: a file for each in the state directory, with a hash
//	Control  what operators do; *Local does it on a roster, client.Client through a Server
//
// # What is promised
//
//   - Without a token, a certificate or a session nothing is told but whether the server is
//     well, and what its API looks like.
//   - Every change is in the audit trail before it is made, and every refusal of somebody who
//     is known; of strangers, as many as the throttle lets through.
//   - A client that does not read is dropped; nobody else waits for it.
//   - What a stranger can make it hold is bounded: see listener.go and middleware.go.
package server
