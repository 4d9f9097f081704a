from tools.benchmark.results import Result
import json
def as_text(result: Result) -> str:
    out=[]
    for c in result["cases"]:
        for v in c["variants"]:
            out.append(f"{v['title']} {v.get('void','')} {v.get('missing','')}")
            for n, k in v["contestants"].items():
                s=k["summary"]
                out.append("   %-22s " % n + "  ".join(f"{f}={s[f][1]:.4g}" for f in s if f in v["figures"] or f.startswith('cpu_')))
            out.append("   ratios " + json.dumps({p:{f:round(x,2) for f,x in r.items() if 'records' in f} for p,r in v["ratios"].items()}))
    return "\n".join(out)
