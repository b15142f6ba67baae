// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// uninstaller looks at the release of a run, and uninstalls it.
type uninstaller struct{ o *operator }

// lookBlindly tries to read a release that cannot be read, as often as is tried.
func (u uninstaller) lookBlindly() {
	if u.o.keeps(BlindEnds) {
		u.o.move(AtStart, u.o.label(LookRelease, Refused), func(p *Process) { p.Seen = SeenBlind })
	}
}

// lookRelease reads the release.
func (u uninstaller) lookRelease() {
	rel, was := &u.o.s.Rel, u.o.r.Release
	sight := SeenAsCommitted
	switch {
	case rel.Status == Absent, rel.Era != was.Era && u.o.keeps(EraCompared):
		sight = SeenGone
	case rel.Pending:
		sight = SeenPending
	case rel.Revision != was.Revision && u.o.keeps(RevisionCompared):
		sight = SeenUpgraded
	case u.begun(rel):
		sight = SeenBegun
	case rel.Status == Uninstalling:
		sight = SeenUninstalling
	}
	u.o.move(AtStart, u.o.label(LookRelease, OK), func(p *Process) { p.Seen, p.Reviewed = sight, false })
}

// begun says that a release is uninstalling, and that the run has begun that.
func (u uninstaller) begun(rel *Release) bool {
	return rel.Status == Uninstalling && (rel.Mark == u.o.r.Number || !u.o.keeps(OnlyOwnFinished))
}

// finish goes on with an uninstall that the run has begun.
func (u uninstaller) finish() {
	if u.o.finish {
		u.begin(AtGetReleaseObject, FinishUninstall)
	}
}

// begin makes up the process's mind to uninstall the release, or to go on with that, once the author is reviewed.
func (u uninstaller) begin(at Place, what What) {
	if !u.o.p.Reviewed && u.o.keeps(AuthorAsked) {
		if u.o.s.Barred {
			u.o.move(AtStart, u.o.label(ReviewAuthor, Refused), nil)
		} else {
			u.o.move(AtStart, u.o.label(ReviewAuthor, OK), func(p *Process) { p.Reviewed = true })
		}
		return
	}
	n := *u.o.s
	p := &n.P[u.o.i]
	p.At, p.Seen, p.Reviewed = at, NotSeen, false
	breaks := Sound
	if !u.o.s.Entitled {
		breaks = AuthorMay
	}
	u.o.add(&n, u.o.label(what, Chosen), true, breaks)
}

// step is one request of an uninstall.
func (u uninstaller) step() {
	n := *u.o.s
	p, rel, was := &n.P[u.o.i], &n.Rel, u.o.r.Release
	same := (rel.Era == was.Era || !u.o.keeps(EraCompared)) && (rel.Revision == was.Revision || !u.o.keeps(RevisionCompared))
	ours := u.begun(rel) && same && !rel.Pending && !rel.Locked
	step := func(at Place, w What, a Answer, breaks Property) {
		p.At = at
		u.o.add(&n, u.o.label(w, a), true, breaks)
	}
	switch p.At {
	case AtMarkRelease:
		switch {
		case !u.o.deed || !p.Confirmed || rel.Locked:
			step(AtStart, StartUninstall, Withheld, Sound)
		case !same, rel.Status == Absent, u.begun(rel):
			step(AtStart, StartUninstall, Conflict, Sound)
		default:
			breaks := u.o.judgeDeed(u.o.s, u.o.p, u.o.r.Number, false)
			if breaks == Sound {
				breaks = u.o.judgeInstall(rel.Install, was, false)
			}
			n.Touched |= bit(u.o.r.Number)
			n.Swept |= bit(u.o.r.Number)
			rel.Status, rel.Mark = Uninstalling, u.o.r.Number
			step(AtGetReleaseObject, StartUninstall, OK, breaks)
		}
	case AtGetReleaseObject:
		p.Found = rel.Object
		switch {
		case rel.Object == Install{}:
			step(AtDeleteRelease, GetReleaseObject, NotFound, Sound)
		case u.o.keeps(ReleaseListed):
			step(AtListRelease, GetReleaseObject, OK, Sound)
		default:
			step(AtDeleteReleaseObject, GetReleaseObject, OK, Sound)
		}
	case AtListRelease:
		if ours {
			step(AtDeleteReleaseObject, ListRelease, OK, Sound)
		} else {
			p.Found = Install{}
			step(AtStart, ListRelease, Withheld, Sound)
		}
	case AtDeleteReleaseObject:
		found := p.Found
		p.Found = Install{}
		switch {
		case !u.o.finish:
			step(AtStart, DeleteReleaseObject, Withheld, Sound)
		case rel.Object != found:
			step(AtGetReleaseObject, DeleteReleaseObject, Conflict, Sound)
		default:
			breaks := u.o.judgeInstall(found, was, rel.Pending)
			if breaks == Sound {
				breaks = u.o.judgeDeed(u.o.s, u.o.p, u.o.r.Number, true)
			}
			n.Touched |= bit(u.o.r.Number)
			rel.Object = Install{}
			step(AtGetReleaseObject, DeleteReleaseObject, OK, breaks)
		}
	case AtDeleteRelease:
		if !u.o.finish || !ours {
			step(AtStart, DeleteRelease, Withheld, Sound)
			return
		}
		n.Touched |= bit(u.o.r.Number)
		*rel = Release{Install: Install{Era: rel.Era}, Object: rel.Object}
		step(AtStart, DeleteRelease, OK, u.o.judgeDeed(u.o.s, u.o.p, u.o.r.Number, true))
	}
}

// judgeInstall judges that something of an installation is deleted for a run that was committed for another one.
func (m *Model) judgeInstall(hit, committed Install, pending bool) Property {
	switch {
	case hit.Era != committed.Era:
		return NotReinstalled
	case hit.Revision != committed.Revision || pending:
		return NotUpgraded
	}
	return Sound
}
