package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/planfile"
)

// accessAPI serves the entries of the access file, without secrets and without paths of files.
type accessAPI struct {
	path string // Config.Access
}

// registerRoutes implements resource.
func (a *accessAPI) registerRoutes(api huma.API) {
	const details = "Those of the server's access file that plans of the caller's role may use. A worker has an access file too, which may differ."
	register(api, route{method: http.MethodGet, path: "/v1/credentials", id: "listCredentials", what: "list the named credentials", role: Operate,
		details: details}, a.listCredentials)
	register(api, route{method: http.MethodGet, path: "/v1/places", id: "listPlaces", what: "list the named places", role: Operate,
		details: details}, a.listPlaces)
}

// credentialItem is a named credential without its secret.
type credentialItem struct {
	Name        string   `json:"name" doc:"name for credentials: {name: NAME} in a plan"`
	URL         string   `json:"url,omitempty" doc:"source that the credential is bound to; missing if it is for SSH"`
	Fingerprint string   `json:"fingerprint,omitempty" doc:"SHA-256 of the certificate of the source"`
	Hosts       []string `json:"hosts,omitempty" nullable:"false" doc:"hosts of a credential for SSH"`
}

// placeItem is a named place without the parameters of its destination, which name files with secrets.
type placeItem struct {
	Name string `json:"name" doc:"name for place:NAME?staging=/FOLDER in a plan"`
	To   string `json:"to" doc:"its destination without parameters, as proxmox:https://pve1:8006/pve1"`
}

// listCredentials returns the credentials for plans of the user's role.
func (a *accessAPI) listCredentials(ctx context.Context, _ *struct{}) (*listOut[credentialItem], error) {
	access, err := planfile.LoadAccess(a.path)
	if err != nil {
		return nil, err
	}
	var items []credentialItem
	for _, name := range access.CredentialsFor(planfile.Role(whoIn(ctx).Role)) {
		c := access.Credentials[name]
		items = append(items, credentialItem{name, string(c.URL), string(c.Fingerprint), slices.Sorted(maps.Keys(c.SSH.HostKeys))})
	}
	return listOf(items), nil
}

// listPlaces returns the places for plans of the user's role.
func (a *accessAPI) listPlaces(ctx context.Context, _ *struct{}) (*listOut[placeItem], error) {
	access, err := planfile.LoadAccess(a.path)
	if err != nil {
		return nil, err
	}
	var items []placeItem
	for _, name := range access.PlacesFor(planfile.Role(whoIn(ctx).Role)) {
		to, _, _ := strings.Cut(string(access.Places[name].To), "?")
		items = append(items, placeItem{name, to})
	}
	return listOf(items), nil
}
