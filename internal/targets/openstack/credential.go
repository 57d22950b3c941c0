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

// credentials are the data for a login. Their formatting is suppressed.
type credentials struct {
	auth     gophercloud.AuthOptions  // user, password or token, and project
	endpoint gophercloud.EndpointOpts // region and interface of the services
	tls      *tls.Config              // CA and client certificate
}

// String returns a placeholder, so that %v and %s do not print secrets.
func (credentials) String() string { return "***" }

// GoString returns a placeholder, so that %#v does not print secrets.
func (credentials) GoString() string { return "***" }

// splitAddress parses CLOUD?key=value.
func splitAddress(address string) (name string, query url.Values, err error) {
	name, rest, _ := strings.Cut(address, "?")
	query, err = url.ParseQuery(rest)
	if err != nil || strings.ContainsAny(name, "/:@&= ") {
		return "", nil, fault.New(fault.Invalid, "the address of the OpenStack cloud is invalid").
			WithHint("write openstack:CLOUD?network=NETWORK, with a name from clouds.yaml, and without a password")
	}
	return name, query, nil
}

// readCredentials finds credentials like OpenStack's tools: the named cloud in clouds.yaml (and
// secure.yaml), else the
// cloud in OS_CLOUD, else OS_AUTH_URL and the related variables.
func readCredentials(name string, o Options) (credentials, error) {
	if name == "" {
		name = o.Getenv("OS_CLOUD")
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name)}
	if name == "" {
		if o.Getenv("OS_AUTH_URL") == "" {
			return credentials{}, fault.New(fault.Invalid, "the address contains no OpenStack cloud, and OS_CLOUD and OS_AUTH_URL are not set").
				WithHint("write openstack:CLOUD with a name from clouds.yaml, or: export OS_CLOUD=NAME, or: . openrc.sh")
		}
		options = []clouds.ParseOption{clouds.WithCloudName(environmentCloud), clouds.WithCloudsYAML(strings.NewReader(asYAML(o.Getenv)))}
	}
	var c credentials
	var err error
	if c.auth, c.endpoint, c.tls, err = clouds.Parse(options...); err != nil {
		return credentials{}, fault.New(fault.Invalid, "the credentials of OpenStack cloud %q: %s", fault.Line(name), safeErrorText(err)).
			WithHint("test them: openstack --os-cloud %s token issue; clouds.yaml is searched in the current folder, ~/.config/openstack and /etc/openstack", fault.Quote(name))
	}
	c.tls.MinVersion = tls.VersionTLS12
	c.auth.AllowReauth = c.auth.TokenID == "" // a token may expire after an hour, during an upload
	return c, c.setProject(o.Project)
}

// environmentCloud is the name of the cloud that asYAML describes.
const environmentCloud = "OS_* variables"

// asYAML converts the OS_* variables to a clouds.yaml, so that one parser reads both. The result is
// JSON, which is
// valid YAML.
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
	text, _ := json.Marshal(map[string]any{"clouds": map[string]any{environmentCloud: cloud}}) // strings cannot fail
	return string(text)
}

// safeErrorText returns the text of an error of clouds.Parse if it contains no secrets. Errors of the
// YAML parser quote
// the input, which may be a password.
func safeErrorText(err error) string {
	text := err.Error()
	for _, known := range []string{"clouds file not found", "not found in clouds.yaml", "failed to open the CA cert", "failed to parse the CA Cert", "client cert"} {
		if strings.Contains(text, known) {
			return fault.Line(text)
		}
	}
	return "clouds.yaml is malformed"
}

// projectID matches the IDs of projects.
var projectID = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// setProject changes the project of the token. An application credential is bound to one project; then
// the error is
// fault.Invalid.
func (c *credentials) setProject(project string) error {
	if project == "" {
		return nil
	}
	if c.auth.ApplicationCredentialID != "" || c.auth.ApplicationCredentialName != "" {
		return fault.New(fault.Invalid, "an application credential is bound to its project: it cannot be used for %q", fault.Line(project)).
			WithHint("remove project=, or create a credential in that project: openstack application credential create NAME")
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
