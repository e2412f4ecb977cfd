"""Which commands are told to be destructive, which are not, and that no command line is too much."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from putback.agents.guard import destructive
from putback.agents.shell_words import LONGEST, simple_commands

DESTRUCTIVE = {
    "rm -r": """
        rm -rf build
        rm -fr -- build
        rm build -R
        rm --recursive build
        /bin/rm -rf "$DIR"
        \\rm -rf x
        r''m -rf x
        sudo rm -rf x
        sudo -u bob -E rm -rf x
        env A=1 B=2 rm -rf x
        A=1 rm -rf x
        cd /work && rm -rf x
        cd /work || rm -rf x
        true; rm -rf x
        sleep 1 & rm -rf x
        (cd x; rm -rf y)
        { rm -rf x; }
        if true; then rm -rf x; fi
        for f in a b; do rm -rf "$f"; done
        while read -r f; do rm -r "$f"; done < list
        case $x in a) rm -rf y;; esac
        f() { rm -rf x; }; f
        ! rm -rf x
        time rm -rf x
        timeout 5 rm -rf x
        timeout -k 3 5 rm -rf x
        nice -n 5 nohup rm -rf x
        bash -c 'rm -rf x'
        sudo bash -lc "cd y && rm -rf x"
        sh -c "bash -c 'rm -rf x'"
        eval "rm -rf x"
        eval rm -rf x
        echo "$(rm -rf x)"
        echo `rm -rf x`
        diff <(ls) <(rm -rf x)
        rm -rf x # not a comment before
        echo a#b; rm -rf x
        [[ -d x ]] && rm -rf x
        find . -name '*.o' -exec rm -rf {} +
        ls | xargs rm -rf
        xargs -0 -n 1 sudo rm -rf < list
        command rm -rf x
        sudo -- rm -rf x
        env -i PATH=/bin rm -rf x
        sh -ec 'rm -rf x'
        nohup bash -c "cd y; rm -rf x" &
        find . -type d -exec sh -c 'rm -rf "$1"' _ {} \\;
        find . -print0 | xargs -0 -I F sh -c 'rm -r F'
        ls -d */ | while read -r d; do rm -r "$d"; done
        ( cd x && ( rm -rf y ) )
        x=$(cd y && rm -rf z) ls
        parallel rm -r ::: a b
        fd -x rm -r
    """,
    "Remove-Item -Recurse": """
        Remove-Item -Recurse -Force x
        remove-item x -rec
        pwsh -Command "Remove-Item -Recurse x"
        powershell.exe -NoProfile -Command "Remove-Item x -Recurse"
        rd /s /q x
    """,
    "rm": """
        rm notes.txt
        rm -f *.db
        rm -- -r
        find . -type f -execdir rm {} \\;
        git ls-files -o | xargs rm
        git ls-files -o | xargs -I F rm F
        unlink notes.txt
    """,
    "Remove-Item": """
        Remove-Item notes.txt
        Get-ChildItem | Remove-Item
        Get-ChildItem |\nRemove-Item
    """,
    "git reset": """
        git reset --hard
        git reset --hard HEAD~3
        git -C sub -c core.pager=cat reset --har
        git --no-pager reset -q --hard origin/main
        git fetch && git reset --hard origin/main
        /usr/bin/git reset --hard
    """,
    "git clean": """
        git clean -f
        git clean -xdf
        git clean -d --force sub
    """,
    "git checkout": """
        git checkout -- .
        git checkout -- src/app.py
        git checkout HEAD -- src/app.py
        git checkout .
        git checkout HEAD~1 src/app.py
        git checkout -f main
        git checkout --force
        sudo git -C sub checkout main -- .
        bash -c "git checkout -- a"
    """,
    "git restore": """
        git restore .
        git restore src/app.py
        git restore --source HEAD~1 src/app.py
        git restore -SW .
    """,
    "git switch": "git switch --discard-changes main",
    "git stash": """
        git stash drop
        git stash clear
        git stash
        git stash -u
        git stash push -m note
        env GIT_DIR=x git stash save
    """,
    "git branch": """
        git branch -D topic
        git branch -d -f topic
    """,
    "git rm": "git rm -rf src",
    "git worktree": "git worktree remove --force ../other",
    "git reflog": "git reflog expire --expire=now --all",
    "git gc": "git gc --prune=now",
    "git checkout-index": "git checkout-index -af",
    "git read-tree": "git read-tree -u --reset HEAD",
    "--abort": """
        git merge --abort
        git rebase --abort
    """,
    "`cp` may overwrite 'src/app.py'": """
        cp other.py src/app.py
        cp -f other.py src/app.py
        cp /dev/null src/app.py
    """,
    "`ln -f` may overwrite": "ln -sf other.py src/app.py",
    "`tee` overwrites 'src/app.py'": """
        ls | tee src/app.py
        ls | sudo tee -i src/app.py > /dev/null
    """,
    "`-i` rewrites": """
        sed -i 's/a/b/' notes.txt
        sed -i -e 's/a/b/' notes.txt
        sed -Ei s/a/b/ notes.txt
        sed --in-place s/a/b/ notes.txt
        perl -pi -e 's/a/b/' notes.txt
        find . -name '*.py' -exec sed -i s/a/b/ {} +
    """,
    "`rmtree` deletes": """
        python -c "import shutil; shutil.rmtree('x')"
        sudo python3 -c "from shutil import rmtree; rmtree('x')"
    """,
    "`os.remove` deletes": "python3 -c 'import os; os.remove(\"a\")'",
    "`rmSync` deletes": "node -e \"fs.rmSync('x', {recursive: true})\"",
    "remove-source-files": "rsync -a --remove-source-files a/ b/",
    "find -delete": "find . -name '*.pyc' -delete",
    "overwrites 'src/app.py'": """
        > src/app.py
        : > src/app.py
        echo x > src/app.py
        echo x >| src/app.py
        echo x >src/app.py 2>&1
        make &> src/app.py
        make >& src/app.py
        cat <<EOF > src/app.py
        dd if=/dev/zero of=src/app.py bs=1
    """,
    "may overwrite 'src/app.py'": """
        mv other.py src/app.py
        sudo mv -f other.py src/app.py
    """,
    "truncate": """
        truncate -s 0 notes.txt
        truncate --size=10 notes.txt
    """,
    "beyond recovery": "shred -u secret",
    "rsync": "rsync -a --delete a/ b/",
    "Clear-Content": "Clear-Content notes.txt",
}

HARMLESS = """
    ls -la
    grep rm notes.txt
    grep -r 'rm -rf' .
    echo 'rm -rf x'
    echo "rm -rf x"
    echo rm -rf x
    printf '%s' "git reset --hard"
    man rm
    which rm
    type rm
    command -v rm
    command -V rm
    rm --help
    rm --version
    rm --help -rf x
    # a note; rm -rf x
    ls # a note; rm -rf x
    ls > out-$(date).txt
    [[ $a > b ]]
    rm
    sudo -l
    # rm -rf x
    ls # rm -rf x
    git log
    git log --grep='reset --hard'
    git log --oneline -- src
    git status
    git diff HEAD -- .
    git show HEAD:a
    git help clean
    git clean --help
    git clean -n
    git clean -nfd
    git reset
    git reset HEAD a
    git reset --soft HEAD~1
    git checkout main
    git checkout -b topic origin/main
    git checkout -b rm
    git switch -c topic
    git restore --staged a
    git restore -S a
    git stash show
    git stash pop
    git stash list
    git branch -d topic
    git branch --list 'D*'
    git push --force origin main
    git rm --cached a
    git rm -n a
    git worktree remove ../other
    git gc
    git reflog
    git commit -m "rm -rf everything"
    git commit -m "$(cat <<'EOF'\nrm -rf x\ngit reset --hard\nEOF\n)"
    cat <<EOF\nrm -rf x\nEOF
    cat <<-EOF\n\trm -rf x\n\tEOF
    find . -name rm
    find . -name '*.py' -exec grep -l rm {} +
    find . -exec echo rm {} \\;
    ls | xargs grep rm
    ls | xargs
    env
    env A=1 ls
    make clean
    python script.py --rm
    docker run --rm -it image
    ssh host 'rm -rf x'
    ls > /dev/null 2>&1
    ls 2>/dev/null
    ls >&2
    echo x >> notes.txt
    ls &>> notes.txt
    ls > "$OUT"
    ls > /tmp/out
    wc -l < notes.txt
    cat <<< 'rm -rf x'
    [[ $a > $b ]]
    if [[ $a > $b && -f c ]]; then ls; fi
    (( a > b ))
    echo $(( a > b ))
    for ((i=9;i>0;i--)); do ls; done
    awk '$1 > 5' data
    node -e 'a => b'
    diff <(ls a) <(ls b)
    sed -i.bak 's/a/b/' notes.txt
    sed 's/a/b/' notes.txt
    perl -ne 'print if /-i/' notes.txt
    perl -i.bak -pe 's/a/b/' notes.txt
    python -c "print(1)"
    python -c "print('remove')"
    python -m pytest -c rm
    node -e "a.remove()"
    cp a b/
    cp a .
    cp -r a b
    cp a b c
    cp -n a b
    ln -s a b
    ls | tee -a notes.txt
    ls | tee /dev/null
    ls | tee "$OUT"
    tee
    ls > /dev/null && make > /dev/null 2>&1
    git merge main
    git checkout-index a
    git read-tree HEAD
    git status > /dev/null
    trap 'rm -f x' EXIT
    sed -n '/rm -rf/p' notes.txt
    mv a b/
    mv a .
    mv a b c
    mv -n a b
    mv --backup a b
    mv a "$TARGET"
    mv
    dd if=a of=/dev/null
    dd if=a
    truncate -s +10 notes.txt
    rsync -a a/ b/
    rsync -an --delete a/ b/
    rsync -a --delete a/ host:b/
    rmdir empty
    bash script.sh
    bash -c 'ls'
    bash -c
    Remove-Item -WhatIf x
    Get-Help Remove-Item
    Get-ChildItem -Recurse
    '
    "
    $(
    `
    <
    >
    ;;;
"""


def lines(block: str) -> list[str]:
    return [line.strip() for line in block.strip().split("\n        ")]


@pytest.mark.parametrize(
    ("words", "command"), [(words, line) for words, block in DESTRUCTIVE.items() for line in lines(block)]
)
def test_what_destroys_is_told_in_words(words: str, command: str) -> None:
    assert words in (destructive(command) or "nothing")


@pytest.mark.parametrize("command", [line.strip() for line in HARMLESS.strip().split("\n    ") if line.strip()])
def test_what_reads_is_let_alone(command: str) -> None:
    assert destructive(command) is None


@given(st.text())
def test_any_text_is_taken(command: str) -> None:
    assert isinstance(destructive(command), str | None)


@given(
    st.lists(
        st.sampled_from(
            [
                *"'\"`$(){}[]<>|&;#\\\n ~=-",
                "rm",
                "-rf",
                "git",
                "bash",
                "-c",
                "eval",
                "<<",
                "EOF",
                "[[",
                "]]",
                "$(",
                "${",
            ]
        )
    ).map("".join)
)
def test_any_grammar_is_taken(command: str) -> None:
    assert isinstance(destructive(command), str | None)


HOSTILE = [
    "$(",
    "((",
    "`",
    "'",
    '"',
    '"$(',
    "<(",
    "[[ ",
    "<<A\n",
    "bash -c '",
    "a ",
    "\\",
    "${",
    "#",
    "1>",
    "&>",
    "eval ",
    "find -exec ",
    "sudo ",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_bounded_on_hostile_input(unit: str) -> None:
    """A hundred times the length that counts takes no longer than that length."""
    began = time.perf_counter()
    destructive(unit * (100 * LONGEST // len(unit)))
    assert time.perf_counter() - began < 5


def test_deep_nesting_is_followed_only_so_far() -> None:
    assert destructive("$(" * 10 + "rm -rf x" + ")" * 10)
    line = "rm -rf x"
    for _ in range(4):
        line = f"eval {line}"
    assert destructive(line)
    assert isinstance(destructive("eval " * 1000 + "rm -rf x"), str | None)


def test_what_follows_a_document_is_read() -> None:
    assert destructive("cat <<EOF\ntext\nEOF\nrm -rf x")


def test_commands_come_apart_as_a_shell_takes_them_apart() -> None:
    found = simple_commands("a 'b c' \"d $e\" | f>g; h 2>&1")
    assert [(simple.words, simple.over, simple.fed) for simple in found] == [
        (["a", "b c", "d $e"], [], False),
        (["f"], ["g"], True),
        (["h"], [], False),
    ]
