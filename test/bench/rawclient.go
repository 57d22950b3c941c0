package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"time"
)

// A rawClient requests the properties that decamp needs for queueing VMs, and discards
// them. Its time is the lower limit for any client. It formats and parses XML with
// patterns.
type rawClient struct {
	http *http.Client // client with a cookie jar
	url  string       // URL of the SOAP API
}

// newRawClient returns a client for an emulated vCenter.
func newRawClient(at labFacts) (*rawClient, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	anyone := &tls.Config{InsecureSkipVerify: true} // the request contains no secret
	return &rawClient{&http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: anyone}}, "https://" + at.Addr + "/sdk"}, nil
}

// managers maps types of managed objects to their references in a vCenter.
var managers = map[string]string{"SessionManager": "SessionManager", "ViewManager": "ViewManager", "PropertyCollector": "propertyCollector"}

// callSOAP sends one SOAP call and returns the response unparsed.
func (c *rawClient) callSOAP(ctx context.Context, method, this, more string) ([]byte, error) {
	body := fmt.Sprintf(`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Body>`+
		`<%s xmlns="urn:vim25"><_this type="%s">%s</_this>%s</%[1]s></Body></Envelope>`, method, this, managers[this], more)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", method, resp.Status, text)
	}
	return text, err
}

// rawProps lists the properties that decamp reads for queueing VMs.
var rawProps = []string{"name", "parent", "parentVApp", "config.uuid", "config.instanceUuid", "config.template", "runtime.host",
	"config.files.vmPathName", "summary.storage.committed", "summary.config.numVirtualDisks"}

var (
	viewAnswered  = regexp.MustCompile(`<returnval[^>]*>([^<]+)</returnval>`) // reference of a view
	tokenAnswered = regexp.MustCompile(`<token>([^<]+)</token>`)              // token of the next page
)

// listVMs lists all VMs in pages. It returns the seconds until the first and until the
// last page, and the number of VMs.
func (c *rawClient) listVMs(ctx context.Context, at labFacts) (first, last float64, vms int, err error) {
	began := time.Now()
	login := fmt.Sprintf("<userName>%s</userName><password>%s</password>", html.EscapeString(at.User), html.EscapeString(at.Password))
	if _, err := c.callSOAP(ctx, "Login", "SessionManager", login); err != nil {
		return 0, 0, 0, err
	}
	text, err := c.callSOAP(ctx, "CreateContainerView", "ViewManager", `<container type="Folder">group-d1</container><type>VirtualMachine</type><recursive>true</recursive>`)
	if err != nil {
		return 0, 0, 0, err
	}
	view := viewAnswered.FindSubmatch(text)
	if view == nil {
		return 0, 0, 0, fmt.Errorf("no view in %.300s", text)
	}
	ask := fmt.Sprintf(`<specSet><propSet><type>VirtualMachine</type><pathSet>%s</pathSet></propSet><objectSet><obj type="ContainerView">%s</obj><skip>true</skip>`+
		`<selectSet xsi:type="TraversalSpec"><type>ContainerView</type><path>view</path></selectSet></objectSet></specSet><options><maxObjects>500</maxObjects></options>`,
		strings.Join(rawProps, "</pathSet><pathSet>"), view[1])
	// The first call returns a page with a token, and each further call the next page.
	for method := "RetrievePropertiesEx"; ; method = "ContinueRetrievePropertiesEx" {
		if text, err = c.callSOAP(ctx, method, "PropertyCollector", ask); err != nil {
			return 0, 0, 0, err
		}
		// Each VM is one element of the response.
		vms += bytes.Count(text, []byte("<objects>"))
		last = time.Since(began).Seconds()
		if first == 0 {
			first = last
		}
		token := tokenAnswered.FindSubmatch(text)
		if token == nil {
			return first, last, vms, nil
		}
		ask = fmt.Sprintf("<token>%s</token>", token[1])
	}
}
