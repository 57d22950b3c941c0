// Package server shows a fleet to people and programs, and takes their orders: a REST API
// with its OpenAPI document, an event stream, metrics, and a page for browsers.
//
// It moves nothing and holds nothing: whatever it says is in the roster, and whatever it is
// told becomes a row there. So plans survive it, and several servers may stand before one
// roster.
//
//	Server     listens, and knows all handlers
//	router     bounds and counts requests, and passes them to the handlers
//	gate       decides which requests are permitted: authenticator, Role and auditTrail
//	planAPI …  the handlers of one resource of the API each
//	website    the pages for browsers
//	hub        reads the database once for all clients of the event stream
//	fleetCache reads progress and board once for all clients
//	Tokens     who may come in: a file for each in the state directory, with a hash
//	Control    what operators do; Local does it on a database, client.Client through a Server
//
// # What is promised
//
//   - Without a token, a certificate or a session nothing is told but whether the server is
//     well, and what its API looks like.
//   - Every change is in the audit trail before it is made, and every refusal of somebody who
//     is known; of strangers, as many as the throttle lets through.
//   - A client that does not read is dropped; nobody else waits for it.
//   - What a stranger can make it hold is bounded: see bounds.go.
package server
