package vsphere

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Tag is a tag of vCenter's, by its category and its name.
type Tag struct {
	Category string `json:"category"`
	Name     string `json:"name"`
}

// Tagging is how a vCenter's REST service for tags answers. An ESXi host has none.
type Tagging struct {
	Paths TagPaths `json:"paths,omitempty"` // default by Config.Version
	Idle  Duration `json:"idle,omitempty"`  // a session that is unused ends after it; default 5m
	Spare []Tag    `json:"spare,omitempty"` // tags that no VM has
}

// TagPaths selects the available forms of the service.
type TagPaths string

// Forms. VMware's reference has /api as of 7.0 U2 and marks /rest as deprecated since; the tagging
// service itself is as of 6.0, by REST as of 6.5.
const (
	TagsBoth  TagPaths = "both"  // /api and /rest: 7.0 U2 and later
	TagsRest  TagPaths = "rest"  // /rest alone: 6.5 to 7.0 U1
	TagsMixed TagPaths = "mixed" // the sessions of /api, the tags of /rest
	TagsNone  TagPaths = "none"  // neither
)

func (t *Tagging) setDefaults(version string) {
	setDefault(&t.Idle, Duration(5*time.Minute))
	if t.Paths != "" {
		return
	}
	switch t.Paths = TagsBoth; {
	case olderThan(version, 6, 5, 0):
		t.Paths = TagsNone
	case olderThan(version, 7, 0, 2):
		t.Paths = TagsRest
	}
}

func (t Tagging) validate() error {
	var errs []error
	for _, tag := range t.Spare {
		errs = append(errs, tag.validate())
	}
	return errors.Join(append(errs, oneOf("tagging paths", string(t.Paths), []string{string(TagsBoth), string(TagsRest), string(TagsMixed), string(TagsNone)}))...)
}

func (t Tag) validate() error {
	if t.Category == "" || t.Name == "" {
		return fmt.Errorf("tag %+v: want a category and a name", t)
	}
	return nil
}

func olderThan(version string, than ...int) bool {
	for i, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		if i < len(than) && n != than[i] {
			return n < than[i]
		}
	}
	return false
}

// tagService is the REST service of a vCenter.
type tagService struct {
	lab *Lab

	mu         sync.Mutex
	sessions   map[string]time.Time // time of the last use by session ID
	tags       map[string]Tag       // tags by ID
	categories map[string]string    // categories by ID
	attached   map[string][]string  // IDs of tags, by the VM's reference
	hidden     map[string]bool      // VMs that the account may not read
}

// newTagService makes the service of what the config's VMs have.
func newTagService(l *Lab) *tagService {
	s := &tagService{
		lab: l, sessions: map[string]time.Time{}, tags: map[string]Tag{}, categories: map[string]string{},
		attached: map[string][]string{}, hidden: map[string]bool{},
	}
	for _, t := range l.cfg.Tagging.Spare {
		s.addTag(t)
	}
	for ref, m := range l.machines {
		for _, t := range m.spec.Tags {
			s.attached[ref.Value] = append(s.attached[ref.Value], s.addTag(t))
		}
		s.hidden[ref.Value] = m.spec.TagsHidden
	}
	return s
}

func tagURN(kind, name string) string { return "urn:vmomi:" + kind + ":" + uuidOf(name) + ":GLOBAL" }

func (t Tag) categoryID() string { return tagURN("InventoryServiceCategory", t.Category) }

func (s *tagService) addTag(t Tag) string {
	id := tagURN("InventoryServiceTag", t.Category+"\x00"+t.Name)
	s.tags[id], s.categories[t.categoryID()] = t, t.Category
	return id
}

func (s *tagService) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// A tagCall is one of the service's operations, whatever form it came in.
type tagCall struct {
	name    string // name of the call in Stats.REST
	wrapped bool   // /rest: answers are within "value"
	id      string // ID in the path
}

const (
	tagLogin    = "login"
	tagLogout   = "logout"
	tagList     = "list-attached-tags-on-objects"
	tagGet      = "tag"
	categoryGet = "category"
)

// parseCall parses a request; known is false if the service does not have it.
func (s *tagService) parseCall(r *http.Request) (c tagCall, known bool) {
	paths := s.lab.cfg.Tagging.Paths
	path, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	session, tagging, action, before := "session", "cis/tagging/", "action", ""
	if !isAPI {
		path, c.wrapped = strings.CutPrefix(r.URL.Path, "/rest/")
		session, tagging, action, before = "com/vmware/cis/session", "com/vmware/cis/tagging/", "~action", "id:"
	}
	switch {
	case paths == TagsNone, isAPI && paths == TagsRest, !isAPI && !c.wrapped:
		return c, false
	case path == session && r.Method == http.MethodPost:
		c.name = tagLogin
	case path == session && r.Method == http.MethodDelete:
		c.name = tagLogout
	case isAPI && paths == TagsMixed:
	case path == tagging+"tag-association" && r.Method == http.MethodPost && r.URL.Query().Get(action) == tagList:
		c.name = tagList
	case r.Method == http.MethodGet:
		c.name, c.id = tagOrCategory(strings.TrimPrefix(path, tagging), before)
	}
	return c, c.name != ""
}

func tagOrCategory(path, before string) (name, id string) {
	name, id, _ = strings.Cut(path, "/")
	id, ok := strings.CutPrefix(id, before)
	if !ok || id == "" || name != tagGet && name != categoryGet {
		return "", ""
	}
	return name, id
}

func isREST(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/rest/")
}

// serveTags answers a request to the REST service.
func (e *endpoint) serveTags(w http.ResponseWriter, r *http.Request) {
	e.lab.stats.countRequest(r)
	s := e.lab.tags
	c, known := s.parseCall(r)
	if known {
		e.lab.stats.countREST(c.name)
	}
	if hit := e.lab.faults.takeREST(r); hit != nil {
		hit.answerREST(w)
		return
	}
	status, answer := http.StatusNotFound, any(nil)
	if known {
		status, answer = s.answerCall(e, c, r)
	}
	if c.wrapped && status < 300 {
		if status = http.StatusOK; answer != nil {
			answer = map[string]any{"value": answer}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	switch {
	case status >= 300:
		_ = json.NewEncoder(w).Encode(refusalOf(status, c.wrapped)) // fails if the client has disconnected
	case answer != nil:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// answerREST answers what a fault has it.
func (f *injected) answerREST(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if f.isKind(FaultRESTGarbage) {
		_, _ = w.Write([]byte(`{"value":[{"object_id":`))
		return
	}
	w.WriteHeader(cmp.Or(f.Status, http.StatusServiceUnavailable))
	_, _ = w.Write([]byte("{}"))
}

// refusalOf is the error that goes with a status.
func refusalOf(status int, wrapped bool) any {
	name := map[int]string{http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "UNAUTHORIZED", http.StatusNotFound: "NOT_FOUND"}[status]
	name = cmp.Or(name, "ERROR")
	if wrapped {
		return map[string]any{"type": "com.vmware.vapi.std.errors." + strings.ToLower(name), "value": map[string]any{"messages": []any{}}}
	}
	return map[string]any{"error_type": name, "messages": []any{}}
}

func (s *tagService) answerCall(e *endpoint, c tagCall, r *http.Request) (status int, answer any) {
	if c.name == tagLogin {
		return s.logIn(e, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Header.Get("vmware-api-session-id")
	used, ok := s.sessions[id]
	if !ok || s.lab.now().Sub(used) >= time.Duration(s.lab.cfg.Tagging.Idle) {
		delete(s.sessions, id)
		return http.StatusUnauthorized, nil
	}
	s.sessions[id] = s.lab.now()
	switch c.name {
	case tagLogout:
		delete(s.sessions, id)
		return http.StatusNoContent, nil
	case tagList:
		return s.listTags(r)
	case tagGet:
		if t, ok := s.tags[c.id]; ok {
			return http.StatusOK, map[string]any{"id": c.id, "name": t.Name, "category_id": t.categoryID(), "description": "", "used_by": []string{}}
		}
	case categoryGet:
		if name, ok := s.categories[c.id]; ok {
			return http.StatusOK, map[string]any{"id": c.id, "name": name, "cardinality": "MULTIPLE", "associable_types": []string{}}
		}
	}
	return http.StatusNotFound, nil
}

// logIn opens a session for user and password, which one directory judges for all services.
func (s *tagService) logIn(e *endpoint, r *http.Request) (int, any) {
	user, pass, ok := r.BasicAuth()
	if !ok || !e.auth.checkPassword(user, pass) {
		return http.StatusUnauthorized, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID()
	s.sessions[id] = s.lab.now()
	return http.StatusCreated, id
}

// listTags answers which tags some objects have. Those without any are not in the answer; one that is not
// there, or not to be read, has the whole call refused (seen with 6.7 U3: govmomi, pull request 2211).
func (s *tagService) listTags(r *http.Request) (int, any) {
	var ask struct {
		Objects []struct{ ID, Type string } `json:"object_ids"`
	}
	if json.NewDecoder(r.Body).Decode(&ask) != nil || len(ask.Objects) == 0 {
		return http.StatusBadRequest, nil
	}
	out := []any{}
	for _, o := range ask.Objects {
		if hidden, there := s.hidden[o.ID]; hidden || !there || o.Type != "VirtualMachine" {
			return http.StatusForbidden, nil
		}
		if ids := s.attached[o.ID]; len(ids) > 0 {
			out = append(out, map[string]any{"object_id": map[string]string{"id": o.ID, "type": o.Type}, "tag_ids": ids})
		}
	}
	slices.Reverse(out) // the order of the response is not documented
	return http.StatusOK, out
}

// TagSessions is how many sessions the REST service has.
func (l *Lab) TagSessions() int {
	l.tags.mu.Lock()
	defer l.tags.mu.Unlock()
	return len(l.tags.sessions)
}
