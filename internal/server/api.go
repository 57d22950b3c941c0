package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Bounds of a request's body, in bytes.
const (
	planBytes = 4<<20 + 1 // limit of a plan file and one byte more, so that planfile reports the error
	bodyBytes = 512 << 10 // limit of other bodies; a thousand limits have 250 KiB
)

// A route is one operation of the API.
type route struct {
	method, path string         // HTTP method and pattern of the path
	id           string         // ID of the operation, for programs and metrics
	what         string         // action for users and the audit trail: "drop a plan"
	details      string         // more about the operation, for the OpenAPI document
	role         Role           // role that the operation requires
	status       int            // HTTP status of success; default 200
	body         int64          // limit of the body in bytes; bodyBytes if 0
	answer       *huma.Response // success response, if it is not JSON; else nil
}

// DocumentID identifies the OpenAPI document of version 1 of the API. It does not change with releases of decamp.
// The documentation site has the document at this path: docs/schema.
const DocumentID = "https://decamp.dev/schema/openapi/v1.json"

// apiConfig returns the general part of the OpenAPI document. The library's own pages for documents are
// turned off.
func apiConfig(version string) huma.Config {
	c := huma.DefaultConfig("decamp", version)
	c.Info.Description = "Moves virtual machines off VMware ESXi and vCenter onto KVM. Errors are problem details (RFC 9457) with a kind and a remedy."
	c.Extensions = map[string]any{"x-self": DocumentID} // OpenAPI 3.2 has $self
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "made with decamp token add"},
		"certificate": {Type: "mutualTLS", Description: "signed by the CA of the server's option --client-ca; its OU is the role"},
	}
	c.Security = []map[string][]string{{"token": {}}, {"certificate": {}}}
	return c
}

// resource is a handler with routes of the API.
type resource interface{ registerRoutes(huma.API) }

// newAPI registers the routes of all resources on the mux. The gate authorizes each request.
func newAPI(mux *http.ServeMux, version string, g *gate, resources ...resource) huma.API {
	api := humago.New(mux, apiConfig(version))
	api.UseMiddleware(g.authorizeOperation)
	for _, r := range resources {
		r.registerRoutes(api)
	}
	return api
}

// register adds a route. An error of do becomes a Problem.
func register[I, O any](api huma.API, r route, do func(context.Context, *I) (*O, error)) {
	huma.Register(api, r.toOperation(), func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
}

// refusals are the error statuses that every operation may return.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// toOperation returns the route as an operation of the library, with its limits and its possible
// errors.
func (r route) toOperation() huma.Operation {
	op := huma.Operation{
		Method: r.method, Path: r.path, OperationID: r.id, Summary: r.what, Description: r.details,
		Tags:         []string{string(r.role)},
		Metadata:     map[string]any{roleKey: r.role},
		MaxBodyBytes: bodyBytes, BodyReadTimeout: requestTime, DefaultStatus: r.status, Errors: refusals,
	}
	if r.body > 0 {
		op.MaxBodyBytes = r.body
	}
	if r.method != http.MethodGet {
		op.Errors = append([]int{
			http.StatusBadRequest, http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusInsufficientStorage,
		}, refusals...)
	}
	if r.answer != nil {
		op.Responses = map[string]*huma.Response{"200": r.answer}
	}
	return op
}

// listBody is the body of a collection: an object, so that later versions can add fields.
type listBody[T any] struct {
	Items []T `json:"items" nullable:"false"` // items of this page; never nil
	// cursor of the next page; 0 on the last page
	Next int64 `json:"next,omitempty" doc:"cursor of the next page (the audit trail: of earlier entries); 0 or missing if this is the last page"`
}

// listOut is the response with a collection.
type listOut[T any] struct{ Body listBody[T] }

// listOf returns the response with items. A nil slice becomes an empty one, because clients expect an
// array.
func listOf[T any](items []T) *listOut[T] {
	if items == nil {
		items = []T{}
	}
	return &listOut[T]{listBody[T]{Items: items}}
}

// PlanPath and VMPath are what paths name. They are exported for the library, which fills in
// embedded structs.
type (
	// PlanPath is the parameter of paths that name a plan. It is exported for the library, which fills in
	// embedded structs.
	PlanPath struct {
		Plan string `path:"plan" maxLength:"128" pattern:"^[A-Za-z0-9._-]+$" doc:"its name"`
	}
	// VMPath are the parameters of paths that name a VM. It is exported for the library.
	VMPath struct {
		PlanPath
		VM string `path:"vm" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"its reference, as vm-42"`
	}
)
