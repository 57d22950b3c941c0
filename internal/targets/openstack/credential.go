package openstack

import (
	"crypto/tls"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"github.com/decamp/decamp/internal/fault"
)

// credentials are what a login takes. They are never formatted.
type credentials struct {
	auth     gophercloud.AuthOptions
	endpoint gophercloud.EndpointOpts
	tls      *tls.Config
}

// String returns ***, so that %v and %s do not tell.
func (credentials) String() string { return "***" }

// GoString returns ***, so that %#v does not tell.
func (credentials) GoString() string { return "***" }

// splitAddress takes CLOUD?key=value apart.
func splitAddress(address string) (name string, query url.Values, err error) {
	name, rest, _ := strings.Cut(address, "?")
	query, err = url.ParseQuery(rest)
	if err != nil || strings.ContainsAny(name, "/:@&= ") {
		return "", nil, fault.New(fault.Invalid, "this is not the address of an OpenStack cloud").
			WithHint("write openstack:CLOUD?network=NETWORK, with a name of clouds.yaml; a password is never part of it")
	}
	return name, query, nil
}

// readCredentials finds them as OpenStack's own tools do: the named cloud in clouds.yaml (and secure.yaml),
// else the one that OS_CLOUD names, else OS_AUTH_URL and what goes with it.
func readCredentials(name string, o Options) (credentials, error) {
	if name == "" {
		name = o.Getenv("OS_CLOUD")
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name)}
	if name == "" {
		if o.Getenv("OS_AUTH_URL") == "" {
			return credentials{}, fault.New(fault.Invalid, "it is not said which OpenStack cloud is meant").
				WithHint("write openstack:CLOUD with a name of clouds.yaml, or: export OS_CLOUD=NAME, or: . openrc.sh")
		}
		options = []clouds.ParseOption{clouds.WithCloudName(environment), clouds.WithCloudsYAML(strings.NewReader(asYAML(o.Getenv)))}
	}
	var c credentials
	var err error
	if c.auth, c.endpoint, c.tls, err = clouds.Parse(options...); err != nil {
		return credentials{}, fault.New(fault.Invalid, "the credentials of OpenStack cloud %q: %s", fault.Line(name), harmless(err)).
			WithHint("openstack --os-cloud %s token issue tries them; clouds.yaml is looked for here, in ~/.config/openstack and /etc/openstack", fault.Quote(name))
	}
	c.tls.MinVersion = tls.VersionTLS12
	c.auth.AllowReauth = c.auth.TokenID == "" // tokens end after an hour, uploads need not
	return c, c.aim(o.Project)
}

// environment is the cloud that OS_* variables describe.
const environment = "OS_* variables"

// asYAML makes a clouds.yaml of the environment, so that both are read in one way. JSON is YAML.
func asYAML(getenv func(string) string) string {
	auth := map[string]string{}
	for key, variables := range map[string][]string{
		"auth_url": {"OS_AUTH_URL"}, "username": {"OS_USERNAME"}, "user_id": {"OS_USER_ID", "OS_USERID"}, "password": {"OS_PASSWORD"},
		"project_id": {"OS_PROJECT_ID", "OS_TENANT_ID"}, "project_name": {"OS_PROJECT_NAME", "OS_TENANT_NAME"},
		"user_domain_id": {"OS_USER_DOMAIN_ID"}, "user_domain_name": {"OS_USER_DOMAIN_NAME"},
		"project_domain_id": {"OS_PROJECT_DOMAIN_ID"}, "project_domain_name": {"OS_PROJECT_DOMAIN_NAME"},
		"domain_id": {"OS_DOMAIN_ID"}, "domain_name": {"OS_DOMAIN_NAME"}, "token": {"OS_TOKEN"},
		"application_credential_id":   {"OS_APPLICATION_CREDENTIAL_ID"},
		"application_credential_name": {"OS_APPLICATION_CREDENTIAL_NAME"}, "application_credential_secret": {"OS_APPLICATION_CREDENTIAL_SECRET"},
	} {
		for _, v := range variables {
			if value := getenv(v); value != "" && auth[key] == "" {
				auth[key] = value
			}
		}
	}
	insecure, _ := strconv.ParseBool(getenv("OS_INSECURE"))
	cloud := map[string]any{"auth": auth, "verify": !insecure}
	for key, variable := range map[string]string{"region_name": "OS_REGION_NAME", "interface": "OS_INTERFACE", "cacert": "OS_CACERT"} {
		if value := getenv(variable); value != "" {
			cloud[key] = value
		}
	}
	text, _ := json.Marshal(map[string]any{"clouds": map[string]any{environment: cloud}}) // of strings, which cannot fail
	return string(text)
}

// harmless is what can be told of an error: YAML's repeat what was read, which may be a password.
func harmless(err error) string {
	text := err.Error()
	for _, known := range []string{"clouds file not found", "not found in clouds.yaml", "failed to open the CA cert", "failed to parse the CA Cert", "client cert"} {
		if strings.Contains(text, known) {
			return fault.Line(text)
		}
	}
	return "what was read is no clouds.yaml that is understood"
}

// projectID is how the IDs of projects look.
var projectID = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// aim has the token be of another project than the credentials say.
func (c *credentials) aim(project string) error {
	if project == "" {
		return nil
	}
	if c.auth.ApplicationCredentialID != "" || c.auth.ApplicationCredentialName != "" {
		return fault.New(fault.Invalid, "an application credential is of one project: it cannot be used for %q", fault.Line(project)).
			WithHint("leave project= out, or make a credential of that project: openstack application credential create NAME")
	}
	if projectID.MatchString(project) {
		c.auth.Scope = &gophercloud.AuthScope{ProjectID: project}
		return nil
	}
	scope := gophercloud.AuthScope{ProjectName: project, DomainID: c.auth.DomainID, DomainName: c.auth.DomainName}
	if s := c.auth.Scope; s != nil && s.ProjectName != "" {
		scope.DomainID, scope.DomainName = s.DomainID, s.DomainName
	}
	c.auth.Scope = &scope
	return nil
}
