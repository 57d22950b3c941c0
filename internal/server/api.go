package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Bounds of a request's body, in bytes.
const (
	planBytes = 4<<20 + 1 // limit of a plan file, and one byte more, so that planfile reports the error
	bodyBytes = 512 << 10 // a thousand limits have 250 KiB
)

// A route is one operation of the API.
type route struct {
	method, path string
	id           string // ID of the operation, for programs and metrics
	what         string // description for users and the audit trail: "drop a plan"
	details      string // more about it
	role         Role
	status       int   // HTTP status of success; default 200
	body         int64 // bytes at most; bodyBytes
	answer       *huma.Response
}

// apiConfig returns the general part of the OpenAPI document.
func apiConfig(version string) huma.Config {
	c := huma.DefaultConfig("decamp", version)
	c.Info.Description = "Moves virtual machines off VMware ESXi and vCenter onto KVM. Errors are problem details (RFC 9457) with a kind and a remedy."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "made with decamp token add"},
		"certificate": {Type: "mutualTLS", Description: "of the CA that the server was given; its OU is the role"},
	}
	c.Security = []map[string][]string{{"token": {}}, {"certificate": {}}}
	return c
}

// resource registers the routes of one resource.
type resource interface{ registerRoutes(huma.API) }

// newAPI registers the routes of all resources on the mux.
func newAPI(mux *http.ServeMux, version string, g *gate, resources ...resource) huma.API {
	api := humago.New(mux, apiConfig(version))
	api.UseMiddleware(g.authorizeOperation)
	for _, r := range resources {
		r.registerRoutes(api)
	}
	return api
}

// register adds a route. What it answers with an error becomes a Problem.
func register[I, O any](api huma.API, r route, do func(context.Context, *I) (*O, error)) {
	huma.Register(api, r.toOperation(), func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
}

// refusals are the statuses that every operation may answer with.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
}

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

// list is what a collection answers: an object, so that it can be added to.
type listBody[T any] struct {
	Items []T   `json:"items" nullable:"false"`
	Next  int64 `json:"next,omitempty" doc:"cursor of the next page (the audit trail: of earlier entries); 0 or missing if this is the last page"`
}

type listOut[T any] struct{ Body listBody[T] }

func listOf[T any](items []T) *listOut[T] {
	if items == nil {
		items = []T{}
	}
	return &listOut[T]{listBody[T]{Items: items}}
}

// PlanPath and VMPath are what paths name. They are exported for the library, which fills in
// embedded structs.
type (
	PlanPath struct {
		Plan string `path:"plan" maxLength:"128" pattern:"^[A-Za-z0-9._-]+$" doc:"its name"`
	}
	VMPath struct {
		PlanPath
		VM string `path:"vm" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" doc:"its reference, as vm-42"`
	}
)
