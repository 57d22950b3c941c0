package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sessions creates and checks the sessions of browsers. A session is a signed cookie. It ends with the
// token that began it, after sessionAge, and when the server restarts: the key that signs cookies is in
// memory only, so that a copy of the state directory forges no session. It is safe for concurrent use.
type sessions struct {
	key    []byte           // key of the signatures, random in each process
	now    func() time.Time // clock of the sessions
	cookie http.Cookie      // attributes of the cookie, without its value
}

const (
	sessionAge = 12 * time.Hour // maximum length of a session
	keyBytes   = 32             // length of the key
	hashMark   = 16             // hex digits of the token's hash in a session, and bytes of its nonce
)

// session is the content of a session cookie.
type session struct {
	Token string `json:"t"` // name of the token
	// beginning of the token's hash, so that a new token of the same name does not continue the session
	Mark  string    `json:"m"`
	Until time.Time `json:"u"` // end of the session
	Nonce []byte    `json:"n"` // random bytes that make each cookie unique
}

// newSessions returns sessions with a new key. secure reports whether browsers use TLS; the cookie then
// has the prefix __Host- (draft-ietf-httpbis-rfc6265bis), so that no other host can set it.
func newSessions(secure bool) *sessions {
	key := make([]byte, keyBytes)
	rand.Read(key)
	c := http.Cookie{Name: "decamp", Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionAge.Seconds())}
	if secure {
		c.Name, c.Secure = "__Host-decamp", true
	}
	return &sessions{key: key, now: time.Now, cookie: c}
}

// forgetSessionKey removes the key that earlier versions stored in the state directory.
func forgetSessionKey(state string) error {
	err := os.Remove(filepath.Join(state, "session.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newCookie returns the cookie of a new session for the owner of t.
func (s *sessions) newCookie(t Token) (*http.Cookie, error) {
	nonce := make([]byte, hashMark)
	rand.Read(nonce)
	text, err := json.Marshal(session{t.Name, t.SHA256[:hashMark], s.now().Add(sessionAge), nonce})
	if err != nil {
		return nil, err
	}
	payload := base64.RawURLEncoding.EncodeToString(text)
	c := s.cookie
	c.Value = payload + "." + s.sign("session", payload)
	return &c, nil
}

// expiredCookie returns a cookie that makes the browser remove the session's.
func (s *sessions) expiredCookie() *http.Cookie {
	c := s.cookie
	c.MaxAge = -1
	return &c
}

// readSession returns the session of a request's cookie, and the cookie's value. ok is false if the
// signature is invalid or the session has expired.
func (s *sessions) readSession(r *http.Request) (said session, value string, ok bool) {
	c, err := r.Cookie(s.cookie.Name)
	if err != nil {
		return said, "", false
	}
	payload, signature, _ := strings.Cut(c.Value, ".")
	if !hmac.Equal([]byte(signature), []byte(s.sign("session", payload))) {
		return said, "", false
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &said) != nil {
		return said, "", false
	}
	return said, c.Value, s.now().Before(said.Until)
}

// formProof returns the proof in the forms of a session, so that no other site can create one. value is
// the cookie's value.
func (s *sessions) formProof(value string) string { return s.sign("form", value) }

// isProof reports whether proof is that of the session, in constant time.
func (s *sessions) isProof(value, proof string) bool {
	return hmac.Equal([]byte(proof), []byte(s.formProof(value)))
}

// sign returns an HMAC of text for use, as text.
func (s *sessions) sign(use, text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(use + ":" + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
