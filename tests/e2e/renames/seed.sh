# Trees of the host's, one directory a case: `a` and sometimes `b`.
mk() {
    mkdir -p "$1/s/t" "$1/e"
    echo "$1" >"$1/f"; echo x >"$1/s/x"; echo y >"$1/s/t/y"
    touch -d '2020-02-03 04:05:06.123456789' "$1/f" "$1/s/t/y"
}
for c in new empty full noreplace noreplace2 exlower exupper exfile self over readonly slash dirfd \
    absolute back chain link kinds onself parent deep mode out; do
    mkdir $c; (cd $c; mk a)
done
mkdir empty/b; mk full/b; mkdir noreplace2/b
mk exlower/b; echo b >>exlower/b/f; mkdir exlower/b/only; echo o >exlower/b/only/o
echo file >exfile/b; echo file >over/b
mkdir readonly/to; mk readonly/to/a; chmod 555 readonly/to
mkdir link/real; mk link/real/a; ln -s real link/through
mkdir parent/to
cd kinds/a
setfattr -n user.note -v n f; chmod 444 f; ln -s f link; ln -s /nowhere/at/all dangling; mkfifo pipe
echo long >name; ln name other; ln name s/third; : >empty; mkdir ro; echo in >ro/in
setfattr -n user.dir -v d s; setfacl -d -m u::rwx,g::r-x,o::--- s; setfacl -m g::r-x,m::rx s/x
chmod 2751 s; chmod 555 ro; truncate -s 1M hole; printf tail >>hole; chmod 1777 e
# A commit has to look into it on the host, which takes root.
[ "$(id -u)" != 0 ] || { mkdir closed; echo c >closed/c; }
touch -d '2019-01-01 00:00:01.5' name hole ro/in; touch -h -d '2018-01-01' link
cd ../..
cd deep/a
p=.
for i in $(seq 60); do d=$(printf "level-%02d-%s" $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx); mkdir $d; cd -P $d; done; echo bottom >bottom
cd - >/dev/null 2>&1
