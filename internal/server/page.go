package server

import (
	"embed"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

//go:embed page
var pageFiles embed.FS

// pages are the templates. Each value is escaped for its context. Templates cannot call methods, as in
// package notify.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": formatBytes, "rate": formatRate, "percent": percentOf, "readable": resourceWords, "silence": silenceText,
	"utc": func(t time.Time, layout string) string { return t.UTC().Format(layout) },
}).ParseFS(pageFiles, "page/*.html"))

// pageFrame is the data that all pages have.
type pageFrame struct {
	Title   string       // title of the page
	Who     User         // user; the zero value on the login page
	Proof   string       // proof of the session for forms; "" without a session
	Version string       // release of decamp
	Fleet   fleetSummary // resources in use, for the header
	Body    any          // data of this page

	Operates bool // true if the page has buttons
}

// website serves the pages for browsers. It is safe for concurrent use.
type website struct {
	version string           // release of decamp
	gate    *gate            // authorizes requests
	plans   *fleetdb.Plans   // plans of the fleet database
	vms     *fleetdb.VMs     // VMs of the fleet database
	workers *fleetdb.Workers // workers of the fleet database
	cache   *fleetCache      // progress and scheduler state
	orders  *orders          // executes the commands of buttons
	log     *slog.Logger     // receives pages that could not be sent
}

// registerRoutes adds the pages and the forms to mux.
func (s *website) registerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /static/{file}", serveStatic)
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("POST /login", s.handleLogin)
	mux.HandleFunc("POST /logout", s.handleLogout)
	mux.HandleFunc("GET /{$}", s.pageHandler("see the plans", s.showPlans))
	mux.HandleFunc("GET /plans/{plan}", s.pageHandler("see a plan", s.showPlan))
	mux.HandleFunc("POST /plans/{plan}/commands", s.formHandler("send a command to a plan", s.planForm))
	mux.HandleFunc("POST /plans/{plan}/vms/{vm}/commands", s.formHandler("send a command to a VM", s.vmForm))
}

// serveStatic serves script, style and icon. Folders are not listed.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pageFiles, path.Join("page/static", path.Base(r.PathValue("file"))))
}

// pageHandler returns the handler of a page. Users without a session are redirected to the login. what
// is for the audit trail.
func (s *website) pageHandler(what string, show func(http.ResponseWriter, *http.Request, User) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.gate.auth.identifyUser(r)
		if err == nil && who.Role == Nobody {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		if err == nil {
			who, err = s.gate.permitRequest(r, View, what, r.URL.Path)
		}
		if err == nil {
			err = show(w, r, who)
		}
		if err != nil {
			s.showError(w, who, err)
		}
	}
}

// formBytes is the limit of a form, in bytes.
const formBytes = 16 << 10

// formHandler returns the handler of a button, for users with a valid session and a form of this
// server. do returns the page to go back to.
func (s *website) formHandler(what string, do func(*http.Request) (back string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, formBytes)
		who, err := s.gate.permitRequest(r, Operate, what, r.URL.Path)
		if err == nil && who.Session != "" && !s.gate.auth.sessions.isProof(who.Session, r.PostFormValue("proof")) {
			err = fault.New(fault.Denied, "the form is not of this session").WithHint("reload the page, and try again")
			s.gate.trail.noteRefusal(r.Context(), who, what, r.URL.Path, err)
		}
		back := ""
		if err == nil {
			back, err = do(r.WithContext(withWho(r.Context(), who)))
		}
		if err != nil {
			s.showError(w, who, err)
			return
		}
		http.Redirect(w, r, back, http.StatusSeeOther)
	}
}

// renderPage writes a page with its status. An error may leave an incomplete page.
func (s *website) renderPage(w http.ResponseWriter, status int, name string, p pageFrame) error {
	p.Version, p.Operates = s.version, p.Who.Role.May(Operate)
	if p.Who.Session != "" {
		p.Proof = s.gate.auth.sessions.formProof(p.Who.Session)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	return pages.ExecuteTemplate(w, name, p)
}

// showError writes the page of an error.
func (s *website) showError(w http.ResponseWriter, who User, err error) {
	p := problemOf(err)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if err := s.renderPage(w, p.Status, "error.html", pageFrame{Title: p.Title, Who: who, Body: p}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

// showLogin writes the login page.
func (s *website) showLogin(w http.ResponseWriter, _ *http.Request) {
	if err := s.renderPage(w, http.StatusOK, "login.html", pageFrame{Title: "Log in"}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

// handleLogin begins a session for the owner of a token.
func (s *website) handleLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytes)
	from := peerAddress(r)
	token, err := s.gate.auth.checkSecret(r.PostFormValue("token"), from)
	if err == nil {
		var cookie *http.Cookie
		if cookie, err = s.gate.auth.sessions.newCookie(token); err == nil {
			http.SetCookie(w, cookie)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
	}
	s.gate.trail.noteRefusal(r.Context(), User{From: from}, "log in", "/login", err)
	p := problemOf(err)
	w.Header()["Retry-After"] = p.header["Retry-After"]
	if err := s.renderPage(w, p.Status, "login.html", pageFrame{Title: "Log in", Body: p}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

// handleLogout removes the session's cookie.
func (s *website) handleLogout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.gate.auth.sessions.expiredCookie())
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// plansPage is the data of the first page.
type plansPage struct {
	Plans   []planRow        // all plans, the oldest first
	Workers []fleetdb.Worker // all workers that ever joined
}

// planRow is a plan with sums of its counts.
type planRow struct {
	fleetdb.Plan
	All, Done, Failed int  // number of VMs in all states, and in two of them
	Open              bool // the plan accepts commands for VMs that have not ended
	Retries           bool // the retry command would start something again
	Cancels           bool // the cancel command would undo something
	Acts              bool // the plan accepts a command
}

// rowOf returns the row of p.
func rowOf(p fleetdb.Plan) planRow {
	row := planRow{Plan: p, Done: p.Counts[fleetdb.Done], Failed: p.Counts[fleetdb.Failed]}
	for _, n := range p.Counts {
		row.All += n
	}
	row.Open = !p.State.IsFinal()
	row.Retries = row.Failed+p.Counts[fleetdb.Canceled] > 0 || p.State == fleetdb.PlanFailed
	row.Cancels, row.Acts = row.Open || row.Failed > 0, row.Open || row.Retries
	return row
}

// showPlans writes the first page.
func (s *website) showPlans(w http.ResponseWriter, r *http.Request, who User) error {
	ctx := r.Context()
	plans, err := s.plans.List(ctx)
	if err != nil {
		return err
	}
	var body plansPage
	for _, p := range plans {
		body.Plans = append(body.Plans, rowOf(p))
	}
	if body.Workers, err = s.workers.List(ctx); err != nil {
		return err
	}
	b, err := s.cache.readState(ctx)
	if err != nil {
		return err
	}
	return s.renderPage(w, http.StatusOK, "plans.html", pageFrame{Title: "Plans", Who: who, Fleet: newSummary(b), Body: body})
}

// planPage is the data of the page of a plan.
type planPage struct {
	planRow
	States []stateTab   // tabs with the states of the VMs
	Items  []vmItem     // VMs of this page
	Query  string       // query of this page, for the script and for links back to it
	Next   template.URL // query of the next page, made of fixed words and numbers; "" on the last page
	First  bool         // this is the first page
}

// stateTab is a link to the VMs of one state.
type stateTab struct {
	State  fleetdb.State // state of the VMs; "" for all states
	Count  int           // number of VMs
	Chosen bool          // the page shows these VMs
}

// showPlan writes the page of a plan.
func (s *website) showPlan(w http.ResponseWriter, r *http.Request, who User) error {
	ctx := r.Context()
	p, err := s.plans.Get(ctx, r.PathValue("plan"))
	if err != nil {
		return err
	}
	q := pageQuery(p.Name, r.URL.Query())
	items, next, err := readPage(ctx, s.vms, s.cache, q)
	if err != nil {
		return err
	}
	b, err := s.cache.readState(ctx)
	if err != nil {
		return err
	}
	body := planPage{planRow: rowOf(p), Items: items, Query: queryText(q, q.After), First: q.After == 0}
	body.States = stateTabs(body.planRow, q)
	if next > 0 {
		body.Next = template.URL("?" + queryText(q, next))
	}
	return s.renderPage(w, http.StatusOK, "plan.html", pageFrame{Title: p.Name, Who: who, Fleet: newSummary(b), Body: body})
}

// pageQuery returns the VMs that a page shows, by its URL. Invalid values are ignored.
func pageQuery(plan string, values url.Values) fleetdb.Query {
	q := fleetdb.Query{Plan: plan, Limit: pageVMs}
	if after, err := strconv.ParseInt(values.Get("after"), 10, 64); err == nil && after > 0 {
		q.After = after
	}
	for _, state := range states {
		if string(state) == values.Get("state") {
			q.States = []fleetdb.State{state}
		}
	}
	return q
}

// queryText is the inverse of pageQuery, with another start of the page.
func queryText(q fleetdb.Query, after int64) string {
	values := url.Values{}
	if after > 0 {
		values.Set("after", strconv.FormatInt(after, 10))
	}
	if len(q.States) > 0 {
		values.Set("state", string(q.States[0]))
	}
	return values.Encode()
}

// stateTabs returns the links to the VMs of each state, and to all VMs first.
func stateTabs(p planRow, q fleetdb.Query) []stateTab {
	all := []stateTab{{Count: p.All, Chosen: len(q.States) == 0}}
	for _, state := range states {
		all = append(all, stateTab{state, p.Counts[state], len(q.States) > 0 && q.States[0] == state})
	}
	return all
}

// backTo returns the page to go back to after a button: the page of the plan with the form.
func backTo(r *http.Request, plan string) string {
	u := url.URL{Path: "/plans/" + plan}
	if values, err := url.ParseQuery(r.PostFormValue("back")); err == nil {
		q := pageQuery(plan, values)
		u.RawQuery = queryText(q, q.After)
	}
	return u.String()
}

// commandWord returns the command of a button. Other words are fault.Invalid.
func commandWord(r *http.Request) (string, error) {
	switch word := r.PostFormValue("command"); word {
	case fleetdb.GoOn.Word(), string(fleetdb.Pause), string(fleetdb.CutOver), string(fleetdb.Cancel), string(fleetdb.Retry), string(fleetdb.Rollback):
		return word, nil
	}
	return "", fault.New(fault.Invalid, "this button has no valid command").WithHint("go back, and use the buttons")
}

// planForm executes a button of a plan.
func (s *website) planForm(r *http.Request) (string, error) {
	word, err := commandWord(r)
	if err != nil {
		return "", err
	}
	plan := r.PathValue("plan")
	return backTo(r, plan), s.orders.commandPlan(r.Context(), plan, word)
}

// vmForm executes a button of a VM.
func (s *website) vmForm(r *http.Request) (string, error) {
	word, err := commandWord(r)
	if err != nil {
		return "", err
	}
	k := fleetdb.Key{Plan: r.PathValue("plan"), VM: r.PathValue("vm")}
	return backTo(r, k.Plan), s.orders.commandVM(r.Context(), k, word)
}
