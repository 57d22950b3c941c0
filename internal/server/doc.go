// Package server provides a fleet to users and programs, and accepts their commands: a REST API with its
// OpenAPI document, an event stream, metrics, and a page for browsers.
//
// It copies no data and stores no state: responses come from the fleet database, and commands become rows
// there. Plans therefore survive it, and several servers can share one fleet database.
//
//	Server     listens, and contains all handlers
//	router     bounds and counts requests, and passes them to the handlers
//	gate       decides which requests are permitted: authenticator, Role and auditTrail
//	planAPI …  the handlers of one resource of the API each
//	website    the pages for browsers
//	hub        reads the database once for all clients of the event stream
//	fleetCache reads progress and scheduler state once for all clients
//	Tokens     API tokens: a file for each in the state directory, with a hash
//	Control    the operators' commands; Local executes them on a database, client.Client through a Server
//
// # Guarantees
//
//   - Without a token, a certificate or a session the server reveals only its health and the
//     description of its API.
//   - Each change is in the audit trail before it is made, and each refusal of a known user;
//     refusals of unknown clients are limited by the throttle.
//   - A client that does not read is dropped; other clients do not wait for it.
//   - The resources that an unauthenticated client can use are bounded: see bounds.go.
package server
