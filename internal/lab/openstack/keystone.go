package openstack

import (
	"fmt"
	"net/http"
	"time"
)

// serveKeystone answers requests of the identity API, version 3. It has one account, with a password
// and with an application credential.
func (c *Cloud) serveKeystone(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case r.Method == http.MethodGet && path[0] == "": // list of versions
		writeJSON(w, http.StatusMultipleChoices, object{"versions": object{"values": []object{{
			"id": "v3.14", "status": "stable", "links": []object{{"rel": "self", "href": c.AuthURL() + "/v3/"}},
		}}}})
	case r.Method == http.MethodPost && len(path) == 3 && path[2] == "tokens": // POST v3/auth/tokens
		c.issueToken(w, r)
	default:
		c.keystoneError(w, http.StatusNotFound, "Could not find this.")
	}
}

// keystoneError writes an error in Keystone's format.
func (c *Cloud) keystoneError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, object{"error": object{"code": status, "title": http.StatusText(status), "message": message}})
}

// issueToken answers a login with a token, the roles and the catalog. The password requires a scope;
// the application credential must have none.
func (c *Cloud) issueToken(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Auth struct {
			Identity struct {
				Methods  []string
				Password struct {
					User struct {
						Name, Password string
						Domain         struct{ ID, Name string }
					}
				}
				ApplicationCredential struct{ ID, Secret string } `json:"application_credential"`
			}
			Scope struct {
				Project struct{ ID, Name string }
			}
		}
	}
	if !decodeBody(w, r, &asked) {
		return
	}
	id, scope := asked.Auth.Identity, asked.Auth.Scope.Project
	user := id.Password.User
	byPassword := user.Name == "mover" && user.Password == Password && (scope.Name == "vms" || scope.ID == Project)
	byApplication := id.ApplicationCredential.ID == "app1" && id.ApplicationCredential.Secret == Secret && scope.ID+scope.Name == ""
	if !byPassword && !byApplication {
		c.keystoneError(w, http.StatusUnauthorized, "The request you have made requires authentication.")
		return
	}
	token := "gAAAAA" + c.newID() // Fernet tokens begin with gAAAAA
	c.tokens[token] = 0           // number of calls
	var roles []object
	for _, role := range c.config.Roles {
		roles = append(roles, object{"id": role, "name": role})
	}
	w.Header().Set("X-Subject-Token", token)
	writeJSON(w, http.StatusCreated, object{"token": object{
		"methods": id.Methods, "expires_at": time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z"),
		"roles": roles, "project": object{"id": Project, "name": "vms", "domain": object{"id": "default", "name": "Default"}},
		"catalog": c.serviceCatalog(),
	}})
}

// serviceCatalog returns the endpoints of the four services in region RegionOne.
func (c *Cloud) serviceCatalog() []object {
	var all []object
	for kind, path := range map[string]string{
		"image": "/image", "volumev3": "/volume/v3/" + Project, "network": "/network", "compute": "/compute/v2.1",
	} {
		all = append(all, object{"type": kind, "name": kind, "id": kind, "endpoints": []object{
			{"id": kind, "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": c.server.URL + path},
		}})
	}
	return all
}

// checkToken reports whether the request has a valid token, and counts its use. Otherwise it writes an
// error 401 and revokes the token.
func (c *Cloud) checkToken(w http.ResponseWriter, r *http.Request) bool {
	token := r.Header.Get("X-Auth-Token")
	used, known := c.tokens[token]
	if !known || c.config.TokenCalls > 0 && used >= c.config.TokenCalls {
		delete(c.tokens, token)
		c.keystoneError(w, http.StatusUnauthorized, "The request you have made requires authentication.")
		return false
	}
	c.tokens[token]++
	return true
}

// isAdmin reports whether the account has the role admin.
func (c *Cloud) isAdmin() bool {
	for _, role := range c.config.Roles {
		if role == "admin" {
			return true
		}
	}
	return false
}

// notFoundText returns the message for a missing object of a kind.
func notFoundText(what, id string) string { return fmt.Sprintf("%s %s could not be found.", what, id) }
