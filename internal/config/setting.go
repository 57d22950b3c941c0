package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Setting is an effective setting with its origin, for users.
type Setting struct {
	Key    string `json:"key"`    // path of the setting, such as sources.lab.url
	Value  string `json:"value"`  // value; a list is separated by commas
	Origin string `json:"origin"` // PATH:LINE, or $VARIABLE
}

// List returns the effective settings, sorted by key. An environment variable replaces the default of its
// flag.
func (s *Settings) List(env func(string) string) []Setting {
	list := []Setting{}
	add := func(key, value, origin string) {
		if value != "" {
			list = append(list, Setting{key, value, origin})
		}
	}
	for name, each := range s.Sources {
		at := each.Origin.String()
		add("sources."+name+".url", each.URL, at)
		add("sources."+name+".fingerprint", each.Fingerprint, at)
		add("sources."+name+".passwordFile", each.PasswordFile, at)
	}
	for name, each := range s.Targets {
		add("targets."+name, each.To, each.Origin.String())
	}
	for name, each := range s.Servers {
		at := each.Origin.String()
		add("servers."+name+".url", each.URL, at)
		add("servers."+name+".fingerprint", each.Fingerprint, at)
		add("servers."+name+".ca", each.CA, at)
		add("servers."+name+".tokenFile", each.TokenFile, at)
		add("servers."+name+".clientCert", each.ClientCert, at)
		add("servers."+name+".clientKey", each.ClientKey, at)
	}
	for flag, each := range s.Defaults {
		if v := FlagVariables[flag]; v == "" || env(v) == "" {
			add("defaults."+flag, redactURL(strings.Join(each.Values, ", ")), each.Origin.String())
		}
	}
	for flag, v := range FlagVariables {
		add("defaults."+flag, redactURL(env(v)), "$"+v)
	}
	slices.SortFunc(list, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// redactURL returns a text, and xxxxx for the password if it is a URL with one.
func redactURL(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}

// NamedServer is a server with its name, for lists.
type NamedServer struct {
	Name        string `json:"name"`                  // name for --server
	URL         string `json:"url"`                   // https://HOST:PORT
	Fingerprint string `json:"fingerprint,omitempty"` // SHA-256 of the certificate; empty if not set
	Default     bool   `json:"default"`               // commands without --server use it
}

// ListServers returns all servers, sorted by name.
func (s *Settings) ListServers() []NamedServer {
	list := []NamedServer{}
	for _, name := range slices.Sorted(maps.Keys(s.Servers)) {
		each := s.Servers[name]
		list = append(list, NamedServer{name, each.URL, each.Fingerprint, slices.Equal(s.Defaults["server"].Values, []string{name})})
	}
	return list
}
