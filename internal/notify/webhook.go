package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const (
	secretPrefix   = "whsec_"         // prefix of a key that signs requests, as in Standard Webhooks
	minSecretBytes = 24               // minimum length of such a key
	requestTime    = 15 * time.Second // time limit of a request, with its response
	maxResponse    = 64 << 10         // bytes of a response that are read, so that the connection can be used again
)

// webhookSender sends signed POST requests, as Standard Webhooks specifies them.
type webhookSender struct {
	url    string           // address; it may be a secret
	key    []byte           // signs requests; nil: they are not signed
	client *http.Client     // verifies the server, and follows no redirect
	now    func() time.Time // clock of the signatures
}

// newWebhookSender returns the sender of a webhook. A webhook without a key is permitted if its URL is
// a secret.
func newWebhookSender(name string, w planfile.Webhook) (*webhookSender, error) {
	s := &webhookSender{url: string(w.URL), now: time.Now}
	if w.URLFile != "" {
		var err error
		if s.url, err = readSecret(name, string(w.URLFile), "URL"); err != nil {
			return nil, err
		}
		if err := planfile.CheckWebhookURL(s.url); err != nil {
			return nil, fault.New(fault.Invalid, "URL file %s of receiver %s: %w", w.URLFile, name, err).WithHint("write https://HOST/PATH to it")
		}
	}
	secret, err := readSecret(name, string(w.SecretFile), "signing key")
	switch {
	case err == nil:
		if s.key, err = parseSecret(secret); err != nil {
			return nil, fault.New(fault.Invalid, "signing key of receiver %s: %w", name, err).WithHint("make one with: echo whsec_$(openssl rand -base64 32)")
		}
	case w.URLFile == "" || w.SecretFile != "" || !fault.Is(err, fault.NotFound):
		return nil, err
	}
	conf, err := tlsConfig("", string(w.CAFile))
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxIdleConnsPerHost = conf, 1
	s.client = &http.Client{
		Transport: transport, Timeout: requestTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// parseSecret returns the key in the text of a secret. Its error does not contain the text.
func parseSecret(text string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !prefixed || err != nil || len(key) < minSecretBytes {
		return nil, fmt.Errorf("it is not %s and at least %d bytes in base64", secretPrefix, minSecretBytes)
	}
	return key, nil
}

// send implements sender.
func (s *webhookSender) send(ctx context.Context, e Event, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is invalid")
	}
	stamp := strconv.FormatInt(s.now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "decamp")
	r.Header.Set("Webhook-Id", e.ID)
	r.Header.Set("Webhook-Timestamp", stamp)
	if s.key != nil {
		r.Header.Set("Webhook-Signature", "v1,"+signRequest(s.key, e.ID, stamp, body))
	}
	resp, err := s.client.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) { // its text contains the URL, which may be a secret
			err = of.Err
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse)) // only the status counts
	switch {
	case resp.StatusCode/100 == 3:
		return fmt.Errorf("the receiver redirects (HTTP %d), and redirects are not followed", resp.StatusCode)
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("the receiver returned HTTP %d", resp.StatusCode)
	}
	return nil
}

// signRequest returns the signature of a request: HMAC-SHA256 of ID, time and body, in base64.
func signRequest(key []byte, id, stamp string, body []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
